from ._experts import expert_weights as expert_weights, mixed_experts as mixed_experts
from ._moice import Moice as Moice
from ._routers import (
    Router as Router,
    load_routers as load_routers,
    new_routers as new_routers,
    save_routers as save_routers,
)
from ._training import (
    RouterTraining as RouterTraining,
    TrainingSettings as TrainingSettings,
    accumulate_gradients as accumulate_gradients,
    balancing_loss as balancing_loss,
    train_routers as train_routers,
)
from ._training_data import read_sequences as read_sequences
