"""What builds share with other machines: caches of cubins, and services that execute steps.

Nothing here is imported by a build that shares nothing, and nothing by its steps.
"""
