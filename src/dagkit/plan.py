"""being written"""
