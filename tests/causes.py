"""The causes of an error."""


def causes(error: BaseException) -> list[BaseException]:
    """What `error` was raised from, nearest first. Fails where that goes round in a circle."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        assert not any(chain[-1].__cause__ is known for known in chain), f"{chain[-1]!r} is in its own causes"
        chain.append(chain[-1].__cause__)
    return chain[1:]
