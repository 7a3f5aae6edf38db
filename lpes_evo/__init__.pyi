from .config import RunConfig as RunConfig, SearchSettings as SearchSettings, load_config as load_config
from .errors import LpesError as LpesError
from .execution import Evaluator as Evaluator, drive as drive
from .models import LoadedModel as LoadedModel, load_model as load_model
from .reporting import Reporter as Reporter
from .rope import patch_rope as patch_rope
from .runs import RunFolder as RunFolder, run_search as run_search
from .scales import Scales as Scales, load_scales as load_scales
from .search import Evaluation as Evaluation, Search as Search
from .serving import from_pretrained as from_pretrained
from .storage import Journal as Journal
