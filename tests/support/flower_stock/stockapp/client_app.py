"""The clients, with a message API; each keeps its updates."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from leakgauge.integrations.flower import KeepUpdates
from stockapp import task

app = ClientApp(mods=[KeepUpdates("kept")])


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train on the client's records, and send the weights, and controls if such came."""
    kind, part = str(context.run_config["kind"]), int(context.node_config["partition-id"])
    config = msg.content["config"]
    net = task.build(kind)
    task.load(kind, net, msg.content["arrays"].to_torch_state_dict())
    x, y = task.records(kind, part)
    task.train(kind, net, x, y, config["lr"], config.get("proximal-mu", 0.0))
    name = {"partition-id": part} if context.run_config["named"] else {}
    metrics = MetricRecord({"num-examples": len(y), **name})
    records = {"arrays": ArrayRecord(task.state_of(kind, net)), "metrics": metrics}
    if "controls" in msg.content:
        records["controls"] = msg.content["controls"]
    return Message(RecordDict(records), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Send a count alone."""
    metrics = MetricRecord({"num-examples": 1, "loss": 0.0})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
