"""Commands that index, link, calibrate and serve."""
