from ._eval import evaluate as evaluate
from ._main import app as app, main as main
from ._score import score as score
from ._settings import SettingOptions as SettingOptions, add_command as add_command
