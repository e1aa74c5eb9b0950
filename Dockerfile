# docker build --tag unjoined .
# docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/data" unjoined check outcomes.csv ...
FROM python:3.12-slim AS build
COPY . /source
RUN python -m pip wheel --quiet --no-deps --wheel-dir /wheels /source

FROM python:3.12-slim
COPY --from=build /wheels /wheels
COPY constraints.txt /wheels/
RUN python -m pip install --quiet --no-cache-dir --constraint /wheels/constraints.txt \
        "$(ls /wheels/unjoined-*-py3-none-any.whl)[cli,plot]" \
    && rm -r /wheels
# Whoever runs it may have no home in the image; files go to the folder that is mounted.
ENV HOME=/tmp
WORKDIR /data
USER nobody
ENTRYPOINT ["unjoined"]
