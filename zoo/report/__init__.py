"""What a comparison found, as report.html and report.md, made from the files of its folder and nothing else."""
