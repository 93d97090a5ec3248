"""The compact memory inside other libraries: `comper.integrations.sb3` and `comper.integrations.torchrl`.

Each module imports its library, so import only the one you use: `pip install "comper[sb3]"` or `"comper[torchrl]"`.
"""
