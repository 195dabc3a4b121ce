"""Scheduling of pod groups (gate GenericWorkload): queue, cycle, conditions.

Built only if the gate is on; without it nothing here is imported.
"""
