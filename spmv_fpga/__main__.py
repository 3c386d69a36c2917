"""`python -m spmv_fpga` is the same program as `spmv-fpga`."""

from .cli import main

if __name__ == "__main__":
    main()
