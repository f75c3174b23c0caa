"""What a loader counts: read by Prometheus, served by the driver.

Workers measure each attempt at a block, and their figures come back with its outcome.
"""
