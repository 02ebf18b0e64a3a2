"""Verbs about builds that several machines share: their jobs, the merge of their parts, and caches."""
