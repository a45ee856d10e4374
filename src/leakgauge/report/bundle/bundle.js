"use strict";
// Filters the list and the charts, and shows two chosen runs side by side. All figures and texts
// come from the page: this script computes none, and writes text, never HTML.
const known = JSON.parse(document.getElementById("known").textContent);
const rows = [...document.querySelectorAll("#runs tbody tr")];
const form = document.getElementById("filters");
const chosen = [];

function make(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function fits(point, wanted) {
  return ["data", "question", "defense", "verdict"].every(
    (name, place) => !wanted[name] || point[place] === wanted[name]);
}

function filter() {
  const wanted = Object.fromEntries(new FormData(form));
  const narrowed = wanted.question || wanted.defense || wanted.verdict;
  let shown = 0;
  rows.forEach((row, number) => {
    const run = known.runs[number];
    const date = run.when.slice(0, 10);
    const dated = (!wanted.from || date >= wanted.from) && (!wanted.to || date <= wanted.to);
    const fitting = run.points.map(point => fits(point, wanted));
    row.hidden = !(dated && fitting.some(Boolean));
    shown += !row.hidden;
    for (const finding of row.querySelectorAll("[data-point]")) {
      finding.hidden = narrowed ? !fitting[finding.dataset.point] : !("top" in finding.dataset);
    }
  });
  document.getElementById("shown").textContent = `${shown} of ${rows.length} runs`;
  document.getElementById("nothing").hidden = shown > 0;
  filterCharts(wanted);
}

function filterCharts(wanted) {
  let shown = 0;
  for (const figure of document.querySelectorAll("#history figure")) {
    const { data, question, defense } = figure.dataset;
    const fitting = fits([data, question, defense], { ...wanted, verdict: "" });
    let visible = 0;
    for (const mark of figure.querySelectorAll("[data-run]")) {
      const off = rows[mark.dataset.run].hidden;
      mark.classList.toggle("off", off);
      visible += !off;
    }
    figure.hidden = !fitting || visible === 0;
    shown += !figure.hidden;
  }
  document.getElementById("charts-shown").textContent = `${shown} charts`;
}

function choose(box) {
  const number = Number(box.value);
  if (!box.checked) chosen.splice(chosen.indexOf(number), 1);
  else if (chosen.push(number) > 2) {
    document.querySelector(`#runs .pick input[value="${chosen.shift()}"]`).checked = false;
  }
  const names = chosen.map(one => `${known.runs[one].name} (${known.runs[one].when})`);
  document.getElementById("chosen").textContent =
    ["Choose two runs in the list.", `${names[0]}: choose another run.`, names.join(" and ")][chosen.length];
  document.getElementById("chooser").hidden = chosen.length === 0;
  document.getElementById("compare").hidden = chosen.length < 2;
  show();
}

function show() {
  const place = document.getElementById("compared");
  place.replaceChildren();
  if (chosen.length < 2) {
    place.append(make("p", "Choose two runs in the list to see them side by side.", "prose"));
    return;
  }
  const [after, before] = [...chosen].sort((one, other) => one - other); // the list begins with the latest
  const runs = [known.runs[before], known.runs[after]];
  const title = make("h3", `${runs[0].name} → ${runs[1].name}`);
  place.append(title, make("p", `Before: ${runs[0].when}. After: ${runs[1].when}. A difference is after minus before.`, "small"));
  const pair = known.pairs[`${before}-${after}`];
  if (pair && pair.rows) place.append(...parts(pair));
  else place.append(...instead(pair, runs));
}

function instead(pair, runs) {
  if (pair) return [make("p", known.texts[pair.why], "prose")];
  const apart = runs.map(run => run.apart).filter(Boolean);
  if (apart.length) return apart.map(why => make("p", why, "prose"));
  return [
    make("p", "This page does not compare these two. It compares runs on data of the same name that have a question in common, those near in time first. This command compares any two:", "prose"),
    make("pre", `leakgauge compare ${runs[0].typed} ${runs[1].typed} --out differences.html`),
  ];
}

function parts(pair) {
  const text = place => known.texts[place];
  const made = [];
  if (pair.warnings.length) {
    const box = make("div", undefined, "warnings");
    box.append(make("h3", "Read this first"), list(pair.warnings.map(text)));
    made.push(box);
  }
  made.push(table("Differences", ["Test", "Before", "After", "Difference", "Verdict", "Smallest detectable"],
    pair.rows.map(row => difference(row.map(text)))));
  if (pair.changed.length) {
    const changes = table("Settings that differ", ["Setting", "Before", "After"], pair.changed.map(change => {
      const [where, name, before, after] = change.map(text);
      return [header(name, where), cell("Before", before), cell("After", after)];
    }));
    made.push(folded(`Settings that differ: ${pair.changed.length}`, changes));
  } else made.push(make("p", "All settings and versions are equal.", "prose"));
  made.push(make("h3", "How to read the intervals"), list(pair.notes.map(text)));
  if (pair.only.length) made.push(folded(`Not compared: ${pair.only.length}`, list(pair.only.map(text))));
  return made;
}

function difference([title, metric, before, beforeEnds, after, afterEnds, change, ends, verdict, level, smallest]) {
  const badge = make("td");
  badge.append(make("span", verdict, `badge ${level}`));
  return [header(title, metric), cell("Before", before, beforeEnds), cell("After", after, afterEnds),
    cell("Difference", change, ends), badge, cell("Smallest detectable", smallest)];
}

function header(text, below) {
  const made = make("th", text);
  made.scope = "row";
  made.append(make("span", below));
  return made;
}

function cell(of, text, below) {
  const made = make("td");
  made.dataset.of = of;
  if (below === undefined) made.append(text);
  else made.append(make("strong", text), make("span", below));
  return made;
}

function table(caption, titles, lines) {
  const made = make("table", undefined, "diff answer"), head = make("tr"), body = make("tbody");
  const box = make("div", undefined, "scroll");
  titles.forEach(title => { const one = make("th", title); one.scope = "col"; head.append(one); });
  lines.forEach(cells => { const row = make("tr"); row.append(...cells); body.append(row); });
  const top = make("thead");
  top.append(head);
  made.append(make("caption", caption), top, body);
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", caption);
  box.append(made);
  return box;
}

function list(texts) {
  const made = make("ul");
  made.append(...texts.map(text => make("li", text)));
  return made;
}

function folded(title, content) {
  const made = make("details", undefined, "folded");
  made.append(make("summary", title), content);
  return made;
}

form.addEventListener("input", filter);
form.addEventListener("submit", event => event.preventDefault());
form.addEventListener("reset", () => setTimeout(filter));
document.getElementById("runs").addEventListener("change", event => {
  if (event.target.type === "checkbox") choose(event.target);
});
document.querySelectorAll(".needs-script").forEach(one => { one.hidden = false; });
document.querySelectorAll("#runs .pick input").forEach(one => { one.checked = false; });
filter();
show();
