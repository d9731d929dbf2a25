"""Benchmarks that measure minikafka and a minimal reference, the floor, in the same run.

The ratios are stable; absolute numbers change from run to run.
"""
