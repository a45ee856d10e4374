"""Forms of gradient ascent, by the names that users type; imports no torch."""

PRINTED, UNIT, LOG = "printed", "unit", "log"
FORMS = (LOG, PRINTED, UNIT)
