import sys

from hpcnn import get_wrapper

network = get_wrapper(sys.argv[1])  # a backend: the lines below stay as they are
network.build_model("cnn2d_3layer_fullconnected_3layer", input_shape=(1, 28, 28), num_classes=10)
network.compile(optimizer="adam", learning_rate=1e-3)
network.train("data/train.csv", batch_size=50, n_epochs=1)
found = network.evaluate("data/test.csv")
network.save("results/digits.h5")
if network.rank == 0:
    print(f"test accuracy {found.accuracy:.2%}")
