"""Estimators of uplift from separate labels, and models on disk."""
