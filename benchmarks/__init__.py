"""Benchmarks that measure minikafka and a minimal reference, the floor, in the same run.

Ratios between the two are stable; absolute numbers change from run to run.
"""
