"""Sparse matrix-vector products on an AMD Alveo U50."""
