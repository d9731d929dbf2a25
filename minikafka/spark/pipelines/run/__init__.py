"""Pipelines that a TOML file or a command defines: views over topics, SQL steps and a sink."""
