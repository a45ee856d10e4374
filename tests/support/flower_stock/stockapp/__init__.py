"""Small apps of the shapes of Flower's quickstarts: PyTorch, Lightning, and LoRA of peft."""
