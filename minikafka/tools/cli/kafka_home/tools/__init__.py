"""What the classes of Kafka's tools do, one module for each subject. `tables.py` names their options."""
