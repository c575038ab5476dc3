"""The rows of the unary table by topic: a function of one number is a `Function` of one of these modules.

`unary_kinds.UnaryKind` names the rows; pages, expressions and epilogues read them as `UnaryKind.X.row`.
"""
