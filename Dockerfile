# docker build -t tandem .      makes the same image as make release, which needs no Docker daemon.
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
RUN apt-get update -qq && apt-get install -qqy --no-install-recommends patch pkg-config python3-venv && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETARCH VERSION=dev
RUN go run ./tools/release -only-binary -arch $TARGETARCH -version $VERSION && mkdir -p /rootfs/etc/tandem /rootfs/tmp && chmod 1777 /rootfs/tmp

FROM scratch
COPY --from=build /rootfs/ /
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/LICENSE /src/NOTICE /usr/share/doc/tandem/
ARG TARGETARCH
COPY --from=build /src/build/release/tandem_linux_${TARGETARCH} /usr/bin/tandem
USER 65532:65532
EXPOSE 8000 9091
ENTRYPOINT ["/usr/bin/tandem"]
CMD ["serve", "--config", "/etc/tandem/tandem.yaml"]
