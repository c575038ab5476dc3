"""Softmax and log-softmax along one axis, forward and backward."""
