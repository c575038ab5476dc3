"""Recurrences over sequences: causal convolutions, state spaces, recurrent networks."""
