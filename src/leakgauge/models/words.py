"""The networks for images, by the names that users type; imports no torch."""

NETS = (
    "lenet7",
    *("lenet", "slim", "cnn", "cnn-ccs24", "resnet20", "resnet20-conv", "resnet20-4", "resnet50"),
    *("alexnet", "vgg11", "fcnet", "alexnet-cifar", "alexnet-cifar-small", "densenet"),
    *("lenet-relu", "alexnet-3fc", "cnn-2", "mlp-4"),
)
