# zkplan's command line: `docker run zkplan worker --hosts zk1:2181`.
FROM python:3.12-slim

WORKDIR /opt/zkplan
COPY pyproject.toml README.md LICENSE ./
COPY zkplan ./zkplan
RUN pip install --no-cache-dir .

# A plan's functions run here: as a user that owns nothing of the image.
RUN useradd --create-home zkplan
USER zkplan
WORKDIR /home/zkplan

# Docker stops with SIGTERM, on which a worker finishes or hands back what it holds.
ENTRYPOINT ["zkplan"]
CMD ["--help"]
