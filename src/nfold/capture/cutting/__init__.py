"""Graph -> operators: the smallest pieces that may compute on different ranks; compiled, named, cut into parts."""
