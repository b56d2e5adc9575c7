"""Which names of files are taken from other nodes: those that lie below the folder that they are put into."""


def lies_below(name: str) -> bool:
    """Whether a path, with `/` between folders, leads to a file below its folder and nowhere else."""
    return not any(part in ("", ".", "..") or "\0" in part or "\\" in part for part in name.split("/"))
