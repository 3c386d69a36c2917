"""The commands of `spmv-fpga`, by subject; `spmv_fpga.cli` puts them together."""
