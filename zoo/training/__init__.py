"""Training, evaluation and run folders: one LightningModule around any model, data and task."""
