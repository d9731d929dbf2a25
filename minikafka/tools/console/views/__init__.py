"""The views of a running cluster: what each path of the API returns."""
