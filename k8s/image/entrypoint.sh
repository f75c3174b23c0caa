#!/bin/sh
# Runs a command of the product; or what Spark asks of a container on Kubernetes: an executor, or,
# under the operator, a driver. What Spark wants is in the environment that it sets.
set -eu

# Hadoop inside Spark does not start for a user without a name, and a cluster may pick any uid.
# The root filesystem is read-only, so the name comes from a file in /tmp, by libnss-wrapper.
name_the_user() {
  if getent passwd "$(id -u)" > /dev/null; then
    return
  fi
  passwd="${TMPDIR:-/tmp}/passwd"
  {
    cat /etc/passwd
    echo "relay:x:$(id -u):$(id -g)::/tmp:/usr/sbin/nologin"
  } > "$passwd"
  export LD_PRELOAD=libnss_wrapper.so NSS_WRAPPER_PASSWD="$passwd" NSS_WRAPPER_GROUP=/etc/group
}

spark_home() {
  python -c 'import pyspark; print(pyspark.__path__[0])'
}

name_the_user
case "${1:-}" in
  executor)
    home=$(spark_home)
    # One JVM option in each SPARK_JAVA_OPT_n; options hold no spaces or quotes of their own here.
    options=$(env | sed -n 's/^SPARK_JAVA_OPT_[0-9]*=//p')
    # shellcheck disable=SC2086
    exec tini -- java $options \
      "-Xms${SPARK_EXECUTOR_MEMORY}" "-Xmx${SPARK_EXECUTOR_MEMORY}" \
      -cp "${SPARK_CONF_DIR:-$home/conf}:$home/jars/*" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" \
      --executor-id "$SPARK_EXECUTOR_ID" \
      --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
      --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  driver)
    shift
    exec tini -- "$(spark_home)/bin/spark-submit" \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
    ;;
  *)
    exec tini -- "$@"
    ;;
esac
