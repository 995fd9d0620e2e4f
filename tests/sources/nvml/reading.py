"""What the tests of NVML share beside fixtures."""


async def one(source):
    """The GPUs of one good reading."""
    reading = await source.read()
    assert (reading.status, reading.text) == ("ok", "")
    return reading.gpus
