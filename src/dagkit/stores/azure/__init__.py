"""The store in an Azure storage account: blobs for state and outputs, a table as the index (facts: jobq 7)."""

from __future__ import annotations

from dagkit.stores.azure.store import AzureStore

__all__ = ["AzureStore"]
