"""Makes `sheet`, the problem that several tests share, a module that workers can import too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
