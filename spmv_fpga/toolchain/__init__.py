"""From a rendered kernel to an `.xclbin`, and what such a file says about itself."""
