"""Inversion, membership and property of a real federation: what do kept updates give away?"""
