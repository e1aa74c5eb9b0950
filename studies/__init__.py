"""Studies around the package: the paper's experiments, Criteo's data, other packages' areas."""
