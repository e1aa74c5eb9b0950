"""One function per figure: takes data and ``ax``, returns ``ax``."""

from unjoined.plot._curve import plot_uplift_curve
from unjoined.plot._histogram import plot_uplift_histogram

__all__ = ["plot_uplift_curve", "plot_uplift_histogram"]
