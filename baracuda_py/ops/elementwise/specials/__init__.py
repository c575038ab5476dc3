"""The special functions of two and three numbers by topic: a function is a `Special` of one of these modules.

`special_function_kinds.SpecialFunctionKind` names the rows.
"""
