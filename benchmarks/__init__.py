"""Benchmarks that compare with a floor measured in the same run; ratios, not absolute numbers, are
stable.
"""
