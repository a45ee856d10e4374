"""Whose records were used? White-box membership inference (Nasr et al., IEEE S&P 2019).

An attacker who holds a model's parameters computes, for any record, the outputs, the loss and the
gradient of the loss, and judges from them whether the model was trained on the record.
"""
