"""The four state machines that decide: controller, leaders, groups and transactions. None of them does I/O."""
