"""The rows of the binary table by topic: a function of two numbers is an `Operation` of one of these modules.

`binary_kinds.BinaryKind` names the rows; pages, expressions and epilogues read them as `BinaryKind.X.row`.
"""
