"""Experiments that find the policy and the switch interval that suit a program or a server."""
