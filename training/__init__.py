"""Makes versions: captures, decisions, snapshots and jobs. No HTTP, and no torch outside `training.recipe`."""
