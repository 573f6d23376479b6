"""Measurements that query models but are no attacks: CLEVER, decision geometry, local Lipschitz constants, transfer."""
