from ._moice import Moice as Moice
from ._routers import new_routers as new_routers, save_routers as save_routers
from ._training import (
    RouterTraining as RouterTraining,
    TrainingSettings as TrainingSettings,
    train_routers as train_routers,
)
from ._training_data import read_sequences as read_sequences
