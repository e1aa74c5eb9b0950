"""Fitted models for other programs: as an ONNX graph, or as a SQL query."""

from unjoined.export.formula import export_onnx
from unjoined.export.query import export_sql

__all__ = ["export_onnx", "export_sql"]
