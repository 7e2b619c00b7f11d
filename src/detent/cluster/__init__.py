"""Membership of the cluster: leases, leadership of partitions, rescue of lost runs, admission."""
